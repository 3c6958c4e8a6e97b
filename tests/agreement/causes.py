"""Envoy's words, reduced to what was wrong."""

from __future__ import annotations

import re

# The first that is found in the words names the cause.
CAUSES: tuple[tuple[str, str], ...] = (
    (r"Caught \w|Backtrace", "Envoy crashes"),
    (r"unknown fields|unknown enum|has unknown", "unknown field"),
    (r"Unable to parse JSON|update failure", "not in the API's form"),
    (r"Proto constraint validation", "field rule"),
    ((r"Didn't find a registered (network filter |)(implementation|factory)|no factory found|didn't find a registered load"
     r"|Unable to find an? .*factory|with names from \[|Unregistered"), "no such extension at this point"),
    ((r"Failed to load (trusted CA|certificate|private key|incomplete|CRL|pkcs12)|KEY_VALUES_MISMATCH|PEM"
     r"|private key|certificate chain|Failed to parse"), "certificate or key"),
    (r"ticket key", "session ticket keys"),
    (r"malformed IP|malformed url|IP resolver can't|invalid ip/mask|not an IP address|Invalid host configuration", "address"),
    (r"Address must be set|address is necessary|Address for", "address missing"),
    (r"terminal filter|filter named", "order of filters"),
    (r"duplicate|Duplicate|unique|already exists|Only a single wildcard|the same matching|Repeated|more than once", "said twice"),
    ((r"perl operator|repetition|missing \]|missing argument|escape|unexpected \)|missing \)|trailing|character class"
     r"|program size|group n|bad repetition|invalid UTF|rewrite string|named capture|substitution"), "regular expression"),
    ((r"Incorrect configuration|requires param|does not take any|Not supported field|alternative header|not supported type of"
     r"|Formatter not found|serialize type|COALESCE|command at|format string|Invalid header name|length must be|"
     r"Invalid header configuration"), "format string"),
    (r"ConfigSource|config source|API configs|xDS transport|refresh_delay|Config source|configuration source|eds_config", "config source"),
    (r"script load|lua", "Lua script"),
    (r"filter chain|filter chains", "filter chains"),
    (r"may not be (modified|removed)|:-prefixed", "header that may not be changed"),
    (r"[Dd]uration", "duration"),
    (r"existing path in the system|does not exist.*path|Failed to open|unable to read file|invalid path", "file of the machine"),
    (r"jwt|JWT|[Rr]equired provider|requirement_name|jwks", "JWT rules"),
    (r"health check", "health checks"),
    (r"subset|LB policy|load balanc|lb_policy|hash", "load balancing"),
    (r"unknown (weighted )?cluster|cluster specifier", "route to an unknown cluster"),
    (r"[Dd]eprecated", "deprecated"),
    (r"path_template|path_rewrite|path_match", "path template"),
)  # fmt: skip


def cause_of(words: str) -> str:
    """Return the cause in a few words; where none is known, Envoy's last line without names and numbers."""
    line = last_line(words)
    for pattern, cause in CAUSES:
        if re.search(pattern, line):
            return cause
    line = re.sub(r"^.*?(rejected|failure|proto|error): ", "", line)
    line = re.sub(r"Error adding/updating (cluster|listener|scoped route)\(s\) \S+ ", "", line)
    line = re.split(r"goo\.gle/debug", line)[0]
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", line)
    return re.sub(r"\d+", "N", line)[:140].strip() or "no words"


def last_line(words: str) -> str:
    """Return the line in which Envoy says why, in one line even where it shows the whole resource."""
    at = max(words.rfind("Filesystem config update"), words.rfind("Caught "), 0)
    return re.sub(r"\s+", " ", words[at:])
