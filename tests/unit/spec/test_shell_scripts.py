"""Scripts that are followed: what they come to is what bash makes of them."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from dttui.spec.dialects.shell.evaluator import ScriptShell
from dttui.spec.dialects.shell.flow import TooLong
from dttui.spec.dialects.shell.open_parts import Openness, OpenParts
from dttui.spec.dialects.shell.shell_state import ShellState

BASH = shutil.which("bash")
STUB = """\
show() { printf '%s\\0' "$@"; printf '\\n'; }
torchrun() { show torchrun "$@"; }; accelerate() { show accelerate "$@"; }; srun() { show srun "$@"; }
"""
"""Programs that print their arguments in the place of launchers."""
SCRIPTS = {
    "arrays": (
        'A=(--x 1 "a b" \\\n --y)\nA+=(--z)\nN=${#A[@]}\ntorchrun "${A[@]}" t.py $N ${A[2]} "${A[@]:1:2}" ${A[-1]}'
    ),
    "text that is split": ('A="--x 1\n   --y \\\n 2"\ntorchrun $A "$A" t.py'),
    "defaults": 'X=${X:-8} ; : "${Y:=b c}"; torchrun --n=${X} ${Y} ${Z:+never} ${X:+"is set"} ${Q-}t.py',
    "arithmetic": (
        "A=8; N=$((A*4/3%7)); ((N+=2)); let N=N*2; torchrun $N $((A>4?1:0)) $(( (1<<3) | 5 )) "
        "$((-A**2)) $((010+0x1F)) t.py"
    ),
    "patterns": (
        "P=/a/b/c.tar.gz; torchrun ${P##*/} ${P#*/} ${P%.*} ${P%%.*} ${P/a/x} ${P//\\//_} ${P^^} ${P:3:4} ${#P} t.py"
    ),
    "a case": (
        "for m in small --big=7 other; do case $m in small|s) torchrun a;; --big=*) torchrun "
        '"${m#*=}";; *) torchrun c;; esac; done'
    ),
    "functions": ('run() { local n=$1; shift; torchrun --n $n "$@"; }; run 4 t.py "a b" $((1+1))\nrun 2'),
    "conditions": (
        'A=4; if [ $A -gt 2 ] && [[ "x$A" == x4* ]]; then torchrun yes; elif true; then torchrun no; '
        "else torchrun never; fi\n"
        '[ -z "$NOT_SET" ] && torchrun unset || torchrun set\n'
        "if ! [[ -n $NOT_SET || $A -eq 5 ]]; then torchrun neither; fi"
    ),
    "quotes": "torchrun 'a $b' \"c \\\"d\\\" \\$e\" f\\ g $'h\\ti' \"\" ''x t.py",
    "braces": "torchrun a{b,c}d {1..4} x{1,2}y{3,4} t.py",
    "loops": (
        "for ((i=0;i<3;i++)); do torchrun $i; done; n=0; while [ $n -lt 2 ]; do n=$((n+1)); torchrun "
        "w$n; done; until [ $n -eq 0 ]; do n=$((n-1)); done; torchrun $n"
    ),
    "break and continue": ("for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; torchrun $i; done"),
    "eval": 'CMD=\'torchrun --a "b c" t.py\'; eval $CMD; eval "$CMD x"',
    "heredoc": ("read -r -d '' A <<EOF\n--x 1 \\\n--y $((1+1))\nEOF\ntorchrun $A t.py"),
    "a list that is read": 'IFS=, read -ra A <<< "a,b,c"; torchrun "${A[@]}" ${#A[@]}',
    "what IFS parts": (
        "O=$IFS; IFS=,; L='a,b,, c ,'; for h in $L; do n=$((${n:-0}+1)); done; G=(0 1 2); A=\"${G[*]}\"; "
        "S=$(IFS=:; echo \"${G[*]}\"); torchrun $L x$L; IFS=$'\\n'; P='p q\nr s'; torchrun $P; IFS=; torchrun $P; "
        'IFS=$O; torchrun $P $n "$A" "$S" t.py; IFS=" :"; P=" a : b:c  d"; torchrun $P; unset IFS; torchrun $P'
    ),
    "an IFS of read alone": (
        "X='a b'; IFS=: read -r Q R <<< p:q; torchrun $X $Q $R; while IFS= read -r line; do :; done < /dev/null; "
        "torchrun $X; IFS=,; read -r Q R <<< p,q; Y=c,d; torchrun $Y $Q $R"
    ),
    "lines that a loop reads": (
        "while IFS=, read -r n lr; do torchrun $n --lr $lr; done <<E\na,1e-3\n b , 1e-4 ,x,\n\nE\n"
        "IFS=: read -r H P <<< node1:29500:x; torchrun $H $P; IFS=: read -r H P <<< a:b:; torchrun $H $P\n"
        "read -r A <<< '  p  q '; torchrun \"$A\"; IFS= read -r A <<< '  p  q '; torchrun \"$A\"\n"
        '{ read A; read B C; mapfile -t D; } <<E\n1 2\n3 4  5 \n6\n7 8\nE\ntorchrun "$A" "$B" "$C" "${D[@]}"\n'
        "while read x; do while read y; do torchrun $x $y; done <<< 'in'; done <<E\none\ntwo\\\nthree\nE\n"
        "if read x <<< ''; then torchrun empty; fi; read <<< ' r'; torchrun \"$REPLY\"\n"
        "(read x; torchrun $x) <<E\nsub\nE\n"
        'IFS=", " read -ra L <<< "a, b,,c"; torchrun ${#L[@]} "${L[@]}"; read -r -d : x <<< p:q; torchrun $x'
    ),
    "indices": (
        'A=(x "y z"); declare -A M=([lr]=1 [bs]=2); for i in "${!A[@]}"; do torchrun $i "${A[$i]}"; done; '
        'for k in lr bs; do [[ " ${!M[*]} " == *" $k "* ]] && torchrun $k ${M[$k]}; done'
    ),
    "items that are added": (
        "A=([3]=x [1]=y); A+=(z); A+=([7]=s t); A[0]=w; "
        'torchrun "${!A[@]}" "${A[@]}"; B=b; B+=(c d); torchrun "${!B[@]}" "${B[@]}"; C=([2]=p q r); C[1]=o; '
        'torchrun "${!C[@]}" "${C[@]}" ${C[-1]}; declare -A O; O+=(["lr"]=1e-3 ["bs"]=32); O+=([ep]=3 ["bs"]=64); '
        "torchrun ${O[lr]} ${O[bs]} ${O[ep]} ${#O[@]}"
    ),
    "names by name": (
        "declare -A M=([a]=1 [b]=2); M[c]=3; torchrun ${M[b]} ${M[c]} ${#M[@]}; V=A; A=x; torchrun ${!V}"
    ),
    "substitutions": (
        'D=$(dirname /x/y/z.sh); B=`basename /x/y.sh .sh`; torchrun $D $B "$(echo a  b)" $(expr 3 \\* 4) '
        '$(seq 1 3) $(printf "%s-%d" a 3)'
    ),
    "pipes": (
        'G=0,1,2,3; torchrun $(echo $G | tr "," "\\n" | wc -l) $(echo "a:b:c" | cut -d: -f2) $(echo a b '
        "c | awk '{print NF}')"
    ),
    "positional": 'set -- a "b c" d; torchrun $# "$1" "$@" "${@:2}" ${*:1:1}; shift 2; torchrun $1',
    "a subshell": "A=1; (A=2; torchrun $A); torchrun $A; { A=3; torchrun $A; }; torchrun $A",
    "variables of one command": "A=1; A=2 torchrun x; torchrun $A",
    "options": (
        'set -- -g 4 -n2 -v rest; while getopts "g:n:v" o; do case $o in g) G=$OPTARG;; n) N=$OPTARG;; '
        "v) V=1;; esac; done; torchrun $G $N $V $OPTIND"
    ),
    "long options": (
        "set -- --nproc 4 -vb 'x y' rest --data=\"a'b\" last; "
        'O=$(getopt -o n:b:v --long nproc:,data:,verbose -- "$@"); eval set -- "$O"; while true; do case $1 in '
        "-n|--nproc) N=$2; shift 2;; -b) B=$2; shift 2;; --data) D=$2; shift 2;; -v) V=1; shift;; "
        "--) shift; break;; esac; "
        'done; torchrun $N "$B" "$D" $V "$@"'
    ),
    "dots behind variables": "A=x; B=y; torchrun $A/$B.log $A.$B-$A,$B:$A $A/a.$B.b",
    "words without a space": "torchrun a#b \\#c 'd'#e # a comment",
    "an end": "torchrun a; exit 3; torchrun b",
    "a return": "f() { torchrun a; return 1; torchrun b; }; f || torchrun c",
}


def followed(script: str, arguments: tuple[str, ...] = ()) -> list[list[str]]:
    holes = OpenParts()
    ran = ScriptShell(lambda _name: None, holes).run(script, ShellState("s.sh", list(arguments)))
    return [[word.text for word in command.words] for command in ran.commands]


def by_bash(script: str, directory: Path, arguments: tuple[str, ...] = ()) -> list[list[str]]:
    done = subprocess.run(
        [str(BASH), "-c", STUB + script, "s.sh", *arguments],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.decode().split("\0\n")[:-1]
    return [line.split("\0") for line in lines]


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_that_bash_makes(name: str, tmp_path: Path) -> None:
    assert followed(SCRIPTS[name]) == by_bash(SCRIPTS[name], tmp_path)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_scripts_of_parts_at_random_come_to_what_bash_makes_of_them(tmp_path: Path) -> None:
    """Sixty scripts of eight statements each, of which later ones use what earlier ones set."""
    generator = random.Random(18)
    parts = (
        "A=$((B+1))",
        "B=${A:-2}",
        'C=(a $A "b $B")',
        "C+=($B)",
        'D="$A/$B.x"',
        "if [ ${B:-0} -gt 2 ]; then A=7; else B=3; fi",
        "for i in $C 1; do A=$A$i; done",
        "A=${A//1/2}; A=${A: -3}; A=${A:0:3}",
        'torchrun $A "$B" "${C[@]}" ${D##*/}',
        'case "$A" in *2*) D=two;; ?) D=one;; *) D=${D}x;; esac',
        "E=$(echo $D | tr x y); torchrun $E ${#E}",
        "set -- $A z; torchrun $# ${1:-none}",
        "((B=B*2-1)); ((B>9)) && B=1",
    )
    for number in range(60):
        script = "A=1; B=2; C=(c); D=d\n" + "\n".join(generator.choices(parts, k=8)) + '\ntorchrun end "$A" "$B"\n'
        assert followed(script) == by_bash(script, tmp_path), (number, script)


def test_what_nobody_gives_stays_open_and_is_named() -> None:
    holes = OpenParts()
    script = "G=${GPUS:-8}\nP=$1/x\ntorchrun --n $G $P $(date) $SLURM_PROCID $HOME/y <your data>"
    (command,) = ScriptShell(lambda _name: None, holes).run(script, ShellState("s.sh")).commands
    assert [word.text for word in command.words] == [
        "torchrun", "--n", "8", "$1/x", "$(date)", "$SLURM_PROCID", "$HOME/y", "<your data>",
    ]  # fmt: skip
    kinds = {hole.text: hole.openness for word in command.words for hole in word.holes}
    assert kinds == {
        "$1": Openness.NEEDED,
        "$(date)": Openness.RUNTIME,
        "$SLURM_PROCID": Openness.RUNTIME,
        "$HOME": Openness.HOST,
        "<your data>": Openness.NEEDED,
    }
    assert (command.words[3].mark.line, command.words[3].mark.column) == (3, 17)


def test_a_way_that_only_ends_the_script_is_not_taken_where_nothing_decides() -> None:
    script = "if [ ! -f data ]; then echo none; exit 1; fi\nnvidia-smi || exit 1\n[ -d x ] && exit 0\ntorchrun t.py"
    assert followed(script)[-1] == ["torchrun", "t.py"]
    ran = ScriptShell(lambda _name: None, OpenParts()).run(
        '[ -z "$1" ] && { echo "give a name"; exit 2; }\ntorchrun $1', ShellState()
    )
    assert (ran.commands, ran.end and ran.end[0], ran.end and ran.end[2]) == ([], 2, "give a name")


def test_the_directory_is_followed_and_paths_of_the_start_are_seen_from_it() -> None:
    script = 'D=$(cd "$(dirname "$0")/.." && pwd)\nW=$PWD\ncd sub/deep\ntorchrun $D/train.py --out $W/out'
    holes = OpenParts()
    (command,) = ScriptShell(lambda _name: None, holes).run(script, ShellState("tools/run.sh")).commands
    assert command.directory == "./sub/deep"
    assert [word.text for word in command.words[1:]] == ["../../train.py", "--out", "../../out"]


def test_a_directory_that_is_pushed_is_entered_and_popped_again() -> None:
    script = (
        "pushd sub > /dev/null\ntorchrun a\npushd /opt\npushd\ntorchrun b\npopd\ntorchrun c\npopd\npopd\ntorchrun d"
    )
    commands = ScriptShell(lambda _name: None, OpenParts()).run(script, ShellState("run.sh")).commands
    assert [command.directory for command in commands] == ["./sub", "./sub", "/opt", "."]


def test_a_case_that_only_the_host_decides_is_named_and_its_first_way_that_starts_something_taken() -> None:
    script = (
        'case "$(hostname)" in\n a*) D=/a;;\n b*) torchrun b $D;;\n c*) torchrun c;;\nesac\n'
        'case "$(uname)" in x) E=1;; esac; torchrun $E'
    )
    ran = ScriptShell(lambda _name: None, OpenParts()).run(script, ShellState("run.sh"))
    assert [[word.text for word in command.words] for command in ran.commands] == [
        ["torchrun", "b", "$D"],
        ["torchrun", "$E"],
    ]
    assert [mark.line for mark in ran.undecided] == [1, 6]


def test_files_that_are_read_and_scripts_that_are_started_count_where_they_are_there() -> None:
    files = {"env.sh": "export A=7\nN=4", "other.sh": "N=1"}
    holes = OpenParts()
    script = "source env.sh\n. ./none.sh\ntorchrun --n $N $A"
    ran = ScriptShell(lambda _name: None, holes, files.get).run(script, ShellState())
    (command,) = ran.commands
    assert [word.text for word in command.words[1:]] == ["--n", "4", "7"]
    assert command.environment["A"].text == "7"
    assert [word.text for word in ran.sourced] == ["./none.sh"]


@pytest.mark.parametrize(
    "script",
    [
        "while true; do :; done; torchrun a",
        "f() { f; }; f",
        "for i in {1..150}; do for j in {1..100}; do A+=(x); done; done; torchrun ${#A[@]}",
        "eval 'eval \"eval torchrun\"'; a='eval $a'; eval $a",
        "A=aaaaaaaaaa; for i in {1..99}; do A=$A$A; done; torchrun $A",
        "for i in {1..999999999}; do for j in {1..99999}; do torchrun $i; done; done",
        "torchrun {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}",
        "A=" + "a" * 5000 + "; torchrun ${A##*a*a*a*a*a*b} ${A//*a*b/c}",
        "((a=9**9**9)); torchrun $((2**9999)) $((1<<999999999)) $((9/0))",
        "(" * 3000 + "torchrun" + ")" * 3000,
        "torchrun " + "$(" * 500 + "x" + ")" * 500,
        "if [ " + "! " * 5000 + "x ]; then torchrun a; fi",
        'torchrun "' + "${a:-" * 800 + "x" + "}" * 800 + '"',
        "case x in " + "|".join("a*b*c*" for _ in range(2000)) + ") torchrun;; esac",
        "torchrun \x00\ufffd\U000f0001 '\U000f0000' \x1b[2J",
        "torchrun 'a",
        "if then fi done esac } ) ;;",
        "set -- " + "x " * 3000 + "; shift 2999; torchrun $1 ${@:1:99999}",
    ],
)  # fmt: skip
def test_what_does_not_end_or_is_no_script_is_left_in_time(script: str) -> None:
    try:
        ran = ScriptShell(lambda _name: None, OpenParts()).run(script, ShellState())
    except TooLong:
        return
    assert sum(len(word.text) for command in ran.commands for word in command.words) < 100_000_000
