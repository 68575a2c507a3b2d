"""Write random small functions over numbers, lists, strings and dictionaries.

Real packages hold few small algorithms; these make up for it. A function is a header, one or two idioms
and a return. What they teach is how such code hangs together: an index runs to the length, a product
starts at one, a loop moves what its condition reads. They compute nothing in particular.

Idioms are templates. ``{a|b}`` is a choice; ``COND(x)`` and ``TERM(x)`` become a condition and an expression of
x; words in capitals become names: those of ``PARAMETERS`` turn into parameters, the others into locals.
"""

from __future__ import annotations

import random
import re

PARAMETERS = {
    "XS": "items values numbers nums arr data seq xs elements array lst row scores weights ys a",
    "N": "n k limit size target bound m width steps x step num threshold base",
    "M": "m k cols width other high count_ top",
    "S": "text word s line message name string sentence source",
    "G": "graph edges links children adj",
    "ROOT": "tree node root t",
    "START": "start first source begin",
}
LOCALS = {
    "I": "i j k idx index pos p",
    "J": "j l col q at nxt",
    "X": "item value v element number y e cur w val",
    "T": "total result acc count answer score res best sum_ counter",
    "B": "best longest top peak most",
    "OUT": "result out res output found kept answer collected ret",
    "D": "counts seen table groups freq lookup cache mapping d",
    "C": "c ch char letter symbol",
    "LO": "left lo low start i",
    "HI": "right hi high end j",
    "MID": "mid half middle",
    "KEY": "key group bucket name",
    "W": "stack queue todo pending work",
    "Y": "node current here vertex",
    "Z": "child other succ neighbor",
    "SEEN": "seen visited done",
    "ROWS": "table dp grid ways",
    "BUF": "buffer part chunk piece",
}
_VERBS = "count collect scan merge shift fold split trim rank pick weigh score group walk mix step reduce".split()  # noqa: SIM905
_NOUNS = "values items runs pairs parts steps rows marks words chunks peaks gaps blocks levels prefix".split()  # noqa: SIM905

_FOR = (
    "for X in XS:\n",
    "for I, X in enumerate(XS):\n",
    "for I in range(len(XS)):\n    X = XS[I]\n",
    "for X in {reversed|sorted|set}(XS):\n",
)
#: (body, what to return). ``FOR`` stands for one of the loops over XS.
IDIOMS = (
    ("T = 0\nFOR    {if COND(X):\n        |}T += TERM(X)", "T"),
    ("T = 1\nFOR    {if COND(X):\n        |}T *= TERM(X)", "T"),
    ("T = 0\nFOR    if COND(X):\n        T += 1", "T"),
    ("T = 0\nFOR    if COND(X):\n        {T += TERM(X)\n    else:\n        T -= TERM(X)|continue\n    T += X}", "T"),
    ("T = XS[0]\nfor X in XS{|[1:]}:\n    {if X > T:\n        T = X|T = max(T, X)|T = min(T, X)}", "T"),
    ("T = None\nFOR    if T is None or X {<|>} T:\n        T = X", "T"),
    ("OUT = [TERM(X) for X in XS{ if COND(X)|}]", "OUT"),
    ("OUT = []\nFOR    {if COND(X):\n        |}OUT.append(TERM(X))", "OUT"),
    ("OUT = []\nFOR    if X not in OUT:\n        OUT.append(X)", "OUT"),
    ("OUT = []\nFOR    if COND(X):\n        OUT.append(TERM(X))\n    else:\n        OUT.append(X)", "OUT"),
    ("OUT = []\nfor I in range(1, len(XS)):\n    OUT.append(XS[I] {-|+|*} XS[I - 1])", "OUT"),
    ("OUT = []\nT = 0\nfor X in XS:\n    T += X\n    OUT.append(T)", "{OUT|OUT, T}"),
    (
        (
            "B = 1\nT = 1\nfor I in range(1, len(XS)):\n    if XS[I] {>|<|==|>=} XS[I - 1]:\n        T += 1\n"
            "        B = max(B, T)\n    else:\n        T = 1"
        ),
        "B",
    ),
    ("OUT = []\nfor I in range(0, len(XS), N):\n    OUT.append(XS[I:I + N])", "OUT"),
    ("D = {}\nfor X in XS:\n    {D[X] = D.get(X, 0) + 1|if X not in D:\n        D[X] = 0\n    D[X] += 1}", "D"),
    ("D = {}\nfor X in XS:\n    KEY = {X % N|len(X)|X[0]}\n    D.setdefault(KEY, []).append(X)", "D"),
    (
        (
            "D = {}\nfor X in XS:\n    D[X] = D.get(X, 0) + 1\nB = None\nfor KEY, T in D.items():\n"
            "    if B is None or T > D[B]:\n        B = KEY"
        ),
        "B",
    ),
    (
        (
            "{LO = 0\nHI = len(XS) - 1|LO, HI = 0, len(XS) - 1}\nwhile LO < HI:\n    XS[LO], XS[HI] = XS[HI], XS[LO]\n"
            "    LO += 1\n    HI -= 1"
        ),
        "XS",
    ),
    (
        (
            "LO, HI = 0, len(XS) - 1\nwhile LO < HI:\n    T = XS[LO] + XS[HI]\n    if T == N:\n        return LO, HI\n"
            "    if T < N:\n        LO += 1\n    else:\n        HI -= 1"
        ),
        "None",
    ),
    ("T = 0\nwhile N > 0:\n    {T += N % 10|T = T * 10 + N % 10|T += 1}\n    {N //= 10|N = N // 10}", "T"),
    ("T = 0\nfor I in range(1, N + 1):\n    {if COND(I):\n        |}T += TERM(I)", "T"),
    ("T = 1\nfor I in range({1|2}, N + 1):\n    {T *= I|T = T * I}", "T"),
    ("T = 0\nfor I in range(N):\n    for J in range(I + 1, N):\n        if COND(I + J):\n            T += 1", "T"),
    ("I = {0|1}\nOUT = []\nwhile I < N:\n    {if COND(I):\n        |}OUT.append(I)\n    I += {1|2}", "OUT"),
    (
        (
            "SEEN = set()\nOUT = []\nW = [START]\nwhile W:\n    Y = W.pop({|0})\n    if Y in SEEN:\n        continue\n"
            "    SEEN.add(Y)\n    OUT.append(Y)\n    for Z in G[Y]:\n        if Z not in SEEN:\n            W.append(Z)"
        ),
        "OUT",
    ),
    (
        "ROWS = [0] * (N + 1)\nROWS[0] = 1\nfor I in range(1, N + 1):\n    ROWS[I] = ROWS[I - 1] {+|*} TERM(I)",
        "ROWS[N]",
    ),
    (
        (
            "ROWS = [[0] * (M + 1) for _ in range(N + 1)]\nfor I in range(1, N + 1):\n    for J in range(1, M + 1):\n"
            "        ROWS[I][J] = {ROWS[I - 1][J] + ROWS[I][J - 1]|max(ROWS[I - 1][J], ROWS[I][J - 1])"
            "|1 + min(ROWS[I - 1][J], ROWS[I][J - 1])}"
        ),
        "ROWS[N][M]",
    ),
    (
        (
            "OUT = ''\nfor C in S:\n    if {C.isdigit()|C.isalpha()|C != ' '|C not in OUT}:\n"
            "        OUT += C{|.lower()|.upper()}"
        ),
        "OUT",
    ),
    (
        (
            "OUT = []\nBUF = ''\nfor C in S:\n    if C == '{,| |;|-}':\n        OUT.append(BUF)\n        BUF = ''\n"
            "    else:\n        BUF += C\nOUT.append(BUF)"
        ),
        "OUT",
    ),
    ("T = 0\nfor I, C in enumerate(S):\n    if {C == S[I - 1]|C.isupper()|C in '{+-|.,|01}'}:\n        T += 1", "T"),
)
#: (base case, recursive case); ``F(x/y)`` calls the function with y for its parameter x.
RECURSIONS = (
    ("if {not XS|len(XS) == 0}:\n    return 0", "{XS[0] + F(XS/XS[1:])|1 + F(XS/XS[1:])|max(XS[0], F(XS/XS[1:]))}"),
    ("if not XS:\n    return []", "{[TERM(XS[0])] + F(XS/XS[1:])|F(XS/XS[1:]) + [XS[0]]}"),
    ("if N <= {0|1}:\n    return {0|1|N}", "{N + F(N/N - 1)|N * F(N/N - 1)|F(N/N - 1) + F(N/N - 2)}"),
    (
        "if ROOT is None:\n    return 0",
        "{1 + max(F(ROOT/ROOT.left), F(ROOT/ROOT.right))|ROOT.value + F(ROOT/ROOT.left)}",
    ),
    (
        "if len(XS) <= 1:\n    return XS[0]\nMID = len(XS) // 2",
        "{max(F(XS/XS[:MID]), F(XS/XS[MID:]))|F(XS/XS[:MID]) + F(XS/XS[MID:])}",
    ),
)
_CONDITIONS = ("{} > 0", "{} % 2 == {{0|1}}", "{} {{<|>|<=|>=|==|!=}} NUM", "{} % 3 == 0", "{} < N", "0 < {} <= N")
_TERMS = ("{}", "{}", "{} * 2", "{} + 1", "{} - NUM", "abs({})", "{} * {}", "{} // 2", "{} % NUM", "N - {}")

_CHOICE = re.compile(r"\{([^{}]*\|[^{}]*)\}")
_SLOT = re.compile(r"\b(COND|TERM)\(([^()]*)\)")
_WORD = re.compile(r"\b[A-Z]+\b")


def choose(template: str, rng: random.Random) -> str:
    """The template with its choices made, innermost first."""
    while match := _CHOICE.search(template):
        template = template[: match.start()] + rng.choice(match.group(1).split("|")) + template[match.end() :]
    return template


def fill(template: str, rng: random.Random) -> str:
    """The template with its choices made and its conditions, terms and loops in place."""
    template = template.replace("FOR", rng.choice(_FOR))
    while match := _SLOT.search(template):
        kinds = _CONDITIONS if match.group(1) == "COND" else _TERMS
        subject = match.group(2)
        if match.group(1) == "COND" and not subject.isidentifier():
            subject = f"({subject})"
        pattern = rng.choice(kinds)
        text = pattern.format(*[subject] * pattern.count("{}")).replace("{{", "{").replace("}}", "}")
        template = template[: match.start()] + text + template[match.end() :]
    return re.sub("NUM", lambda _: rng.choice(["1", "2", "3", "10", "N"]), choose(template, rng))


class Names:
    """Names for the words in capitals, the same name for the same word all through a function."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.chosen: dict[str, str] = {}
        self.parameters: list[str] = []

    def of(self, word: str) -> str:
        """The name that stands for a word; a word that is none of ours stays."""
        pool = PARAMETERS.get(word) or LOCALS.get(word)
        if word not in self.chosen:
            if pool is None:
                return word
            taken = set(self.chosen.values())
            free = [name for name in pool.split() if name not in taken]
            self.chosen[word] = self.rng.choice(free) if free else f"{pool.split()[0]}{len(taken)}"
            if word in PARAMETERS:
                self.parameters.append(self.chosen[word])
        return self.chosen[word]

    def write(self, text: str) -> str:
        """The text with names for its words."""
        return _WORD.sub(lambda match: self.of(match.group()), text)


def write_function(rng: random.Random) -> str:
    """The source of one random function."""
    names = Names(rng)
    own = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}" if rng.random() < 0.8 else rng.choice(["f", "g", "walk", "run"])
    parts: list[str] = []
    results: list[str] = []
    for body, result in rng.sample(IDIOMS, rng.choice([0, 1, 1, 1, 2])):
        parts.append(names.write(fill(body, rng)))
        results.append(names.write(choose(result, rng)))
    if not parts or rng.random() < 0.1:
        base, step = rng.choice(RECURSIONS)
        parts.append(names.write(fill(base, rng)))
        text = names.write(fill(step, rng))
        results = [re.sub(r"F\((\w+)/([^()]*)\)", lambda match: _call(own, names, *match.groups()), text)]
    if "XS" in names.chosen and rng.random() < 0.25:
        parts.insert(0, f"if not {names.chosen['XS']}:\n    return {rng.choice(['0', '[]', 'None'])}")
    final = ", ".join(dict.fromkeys(results)) if rng.random() < 0.7 else results[-1]
    lines = "\n".join([*parts, f"return {final}"]).split("\n")
    return "\n".join([f"def {own}({', '.join(names.parameters)}):", *("    " + line for line in lines)])


def _call(own: str, names: Names, parameter: str, smaller: str) -> str:
    return f"{own}({', '.join(smaller if name == parameter else name for name in names.parameters)})"
