"""What `fedcomp -sc install=<shell>` prints: tab completion of `fedcomp` and of its scripts in three shells.

Every shell asks `fedcomp -sc query=<shell>` with the line up to the cursor in COMP_LINE, and completes files and
folders where it gets no answer.
"""

from __future__ import annotations

from fedcomp.cli.completion import SCRIPTS

PROGRAMS = " ".join(["fedcomp", *SCRIPTS])

BASH = rf"""_fedcomp()
{{
    local line=${{COMP_LINE:0:COMP_POINT}} word=${{COMP_WORDS[COMP_CWORD]}} last full program
    last=${{line##*[[:space:]]}}
    [[ $word == [=:@] ]] && word=
    [[ $last == *"$word" ]] || word=$last
    program=${{COMP_WORDS[0]/#\~/$HOME}}
    COMPREPLY=()
    while IFS= read -r full; do
        [[ $full ]] && COMPREPLY+=("${{full#"${{last%"$word"}}"}}")
    done < <(COMP_LINE=$line "${{program%fedcomp*}}fedcomp" -sc query=bash 2>/dev/null | tr ' ' '\n')
}}
complete -o default -o nospace -F _fedcomp {PROGRAMS}"""
"""Completions are whole words, but readline replaces only the part after the last of COMP_WORDBREAKS."""

ZSH = rf"""_fedcomp()
{{
    local program=${{~words[1]}} answer
    local -a found
    answer=$(COMP_LINE=$LBUFFER "${{program%fedcomp*}}fedcomp" -sc query=zsh 2>/dev/null)
    found=(${{=answer}})
    if (( $#found )); then
        compadd -Q -S '' -- $found
    else
        _files
    fi
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
compdef _fedcomp {PROGRAMS}"""

FISH = r"""function __fedcomp
    set -l words (commandline -opc)
    set -lx COMP_LINE (commandline -cp)
    set -l program (string replace -r 'fedcomp[^/]*$' fedcomp -- (string replace -r '^~' $HOME -- $words[1]))
    set -l found ($program -sc query=fish 2>/dev/null | string split -n ' ')
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
for program in PROGRAMS
    complete -c $program -f -k -a '(__fedcomp)'
end""".replace("PROGRAMS", PROGRAMS)

INSTALL = {"bash": BASH, "zsh": ZSH, "fish": FISH}
UNINSTALL = {
    "bash": f"complete -r {PROGRAMS}; unset -f _fedcomp",
    "zsh": f"compdef -d {PROGRAMS}; unfunction _fedcomp",
    "fish": f"for program in {PROGRAMS}; complete -c $program -e; end; functions -e __fedcomp",
}
