import pytest

from fsxds.lint.field_values import ip_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("127.0.0.1", 4),
        ("255.255.255.255", 4),
        ("::", 6),
        ("::ffff:1.2.3.4", 6),
        ("fe80::1%eth0", 6),
        ("127.0.0.01", None),
        ("1.2.3.256", None),
        ("127.1", None),
        ("[::1]", None),
        ("a:b", None),
        ("", None),
        ("\u0661.1.1.1", None),
    ],
)
def test_ip_versions(text: str, version: int | None) -> None:
    """Addresses are read as inet_pton reads them; every case stands in the test of addresses too."""
    assert version == ip_version(text)
