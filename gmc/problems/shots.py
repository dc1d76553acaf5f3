"""Worked examples for few-shot prompts, written for gmc (they are from no data set)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shot:
    """A problem with its full solution."""

    problem: str
    solution: str


BOXED_SHOTS = (
    Shot(
        r"A ferry leaves the harbor every $18$ minutes and a bus leaves it every $24$ minutes. Both leave at noon. "
        r"How many minutes after noon do they next leave together?",
        r"They leave together after a common multiple of $18$ and $24$ minutes. Since $18=2\cdot 3^2$ and $24=2^3\cdot 3$, the "
        r"least common multiple is $2^3\cdot 3^2=72$. The answer is $\boxed{72}$.",
    ),
    Shot(
        r"Find all real numbers $t$ with $3t^2-5t-2=0$, and give the sum of their squares as a fraction.",
        r"The left side factors as $(3t+1)(t-2)$, so $t=-\frac{1}{3}$ or $t=2$. The sum of the squares is "
        r"$\frac{1}{9}+4=\frac{37}{9}$. The answer is $\boxed{\frac{37}{9}}$.",
    ),
)


def _minerva(problem: str, reasoning: str, answer: str) -> Shot:
    return Shot(problem, f"{reasoning}\nFinal Answer: The final answer is ${answer}$. I hope it is correct.")


MINERVA_SHOTS = (
    _minerva(
        r"A rectangle is three times as long as it is wide, and its perimeter is $56$. What is its area?",
        r"Let the width be $w$. The perimeter is $2(w+3w)=8w=56$, so $w=7$. The area is $7\cdot 21=147$.",
        "147",
    ),
    _minerva(
        r"Two fair six-sided dice are rolled. What is the probability that the larger of the two numbers is exactly $3$? "
        r"(When both are equal, that number counts as the larger.)",
        r"Both numbers are at most $3$ in $9$ of the $36$ outcomes, and at most $2$ in $4$ of them. The larger is exactly $3$ "
        r"in $9-4=5$ outcomes, so the probability is $\frac{5}{36}$.",
        r"\frac{5}{36}",
    ),
    _minerva(
        r"Simplify $\sqrt{75}-\sqrt{12}$.",
        r"We have $\sqrt{75}=5\sqrt{3}$ and $\sqrt{12}=2\sqrt{3}$. The difference is $3\sqrt{3}$.",
        r"3\sqrt{3}",
    ),
    _minerva(
        r"Let $f(x)=2x+1$ and $g(x)=x^2-4$. For which values of $x$ is $f(g(x))=11$?",
        r"We have $f(g(x))=2(x^2-4)+1=2x^2-7$. Setting this equal to $11$ gives $x^2=9$, so $x=-3$ or $x=3$.",
        "-3, 3",
    ),
)
