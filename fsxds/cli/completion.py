"""Shell completion.

Importing this module is cheap, because a shell runs fsxds at each Tab.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files

from click import Context, Parameter
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from fsxds.settings.forms import ADDRESS_OR_OFF, EXECUTABLE, GLOBS, LEVELS, NAMES, OFF, PATH, RULE_LEVELS
from fsxds.settings.option import Option

Items = list[CompletionItem[str]]

COMPLETION_VARIABLE = "_FSXDS_COMPLETE"
"""By this variable a script requests completions; click reads it."""

# The script sends the line up to the cursor, because bash breaks words at `=` and `:`; -1 is the word at its end. Bash
# replaces only the text after the last break, so the text before it is removed from completions.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} type value
    local breaks=${COMP_WORDBREAKS//[^=:]/} word=${line##*[[:space:]]} before=
    [[ -n $breaks ]] && before=${word%%"${word##*[$breaks]}"}
    [[ -z $word ]] && line+="''"
    COMPREPLY=()
    for completion in $(COMP_WORDS=$line COMP_CWORD=-1 %(complete_var)s=bash_complete "$1"); do
        type=${completion%%%%,*} value=${completion#*,}
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$before"}") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

# After `--option=`, fish replaces the whole word.
_FISH = """\
function %(complete_func)s
    set -l option (string match -r -- '^--[^=]*=' (commandline -ct))
    for completion in (COMP_WORDS=(commandline -cp | string collect) COMP_CWORD=(commandline -ct | string collect) \
%(complete_var)s=fish_complete %(prog_name)s)
        set -l parts (string split -m 1 ',' -- $completion)
        switch $parts[1]
            case dir
                string replace -r '^' -- "$option" (__fish_complete_directories $parts[2])
            case file
                string replace -r '^' -- "$option" (__fish_complete_path $parts[2])
            case plain
                string replace -r '^' -- "$option" $parts[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class BashScript(BashComplete):
    """For bash 4.4 and later."""

    source_template = _BASH

    def source(self) -> str:
        """Skip click's version check."""
        return ShellComplete.source(self)


class ZshScript(ZshComplete):
    """For zsh; after `--option=`, the prefix stays."""

    source_template = ZshComplete.source_template.replace(
        "    local -a response\n", "    local -a response\n    compset -P '--*='\n", 1
    ).replace("compadd -U ", 'compadd -U -i "$IPREFIX" ', 1)


class FishScript(FishComplete):
    """For fish 3 and later."""

    source_template = _FISH


SCRIPTS: dict[str, type[ShellComplete]] = {"bash": BashScript, "zsh": ZshScript, "fish": FishScript}


def values_of(row: Option, incomplete: str) -> Items:
    """Return completions; empty if any text is allowed."""
    form = row.form
    if form is RULE_LEVELS:
        return rule_levels(incomplete)
    if form in (PATH, EXECUTABLE):
        return [CompletionItem(incomplete, type="file")]
    if form in (GLOBS, NAMES):
        return []
    other = (OFF,) if form is ADDRESS_OR_OFF else ()
    return starting(incomplete, form.choices or (*filter(None, (row.default,)), *other))


def rule_levels(incomplete: str) -> Items:
    """Complete rules, and then `rule=level`.

    While several rules match, names end in `=`: shells then write the common prefix, without a space.
    """
    from fsxds.lint.rules import rules

    before, comma, last = incomplete.rpartition(",")
    name, equals, _ = last.partition("=")
    fitting = [name] if equals else [rule for rule in rules() if rule.startswith(name)]
    if len(fitting) > 1:
        return [CompletionItem(f"{before}{comma}{rule}=") for rule in fitting]
    return starting(incomplete, (f"{before}{comma}{rule}={level}" for rule in fitting for level in LEVELS))


def rule_names(_context: Context, _parameter: Parameter, incomplete: str) -> Items:
    """Return rules with this prefix."""
    from fsxds.lint.rules import rules

    return starting(incomplete, rules())


def message_types(_context: Context, _parameter: Parameter, incomplete: str) -> Items:
    """Return the bundled Envoy's extension types, by last part or full name.

    Reading the API in use would take too long.
    """
    content = json.loads((files("fsxds") / "source" / "envoy_features.json").read_text(encoding="utf-8"))
    names = {one for named in content["extensions"].values() for types in named.values() for one in types}
    shown = names if "." in incomplete else {name.rpartition(".")[2] for name in names}
    return starting(incomplete, sorted(shown))


def directories(_context: Context, _parameter: Parameter, incomplete: str) -> Items:
    """Let the shell complete directories."""
    return [CompletionItem(incomplete, type="dir")]


def any_path(_context: Context, _parameter: Parameter, incomplete: str) -> Items:
    """Let the shell complete files."""
    return [CompletionItem(incomplete, type="file")]


def starting(incomplete: str, values: Iterable[str]) -> Items:
    """Return values with this prefix."""
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]
