"""The one exception for what a person can put right, and how text from outside is shown to a person."""

LONGEST = 2000
"""Characters of a sentence."""


class InputError(ValueError):
    """Bad input: one sentence that says what is wrong and names the remedy.

    The command line prints the sentence and exits with code 2; a library user catches a `ValueError`. What the
    sentence quotes is shown as `printable` writes it, so the sentence is one line. It may quote a whole file; then its
    middle is left out, since the remedy comes last.
    """

    def __init__(self, sentence: str) -> None:
        shown, half = printable(sentence), LONGEST // 2 - 3
        super().__init__(shown if len(shown) <= LONGEST else f"{shown[:half]} ... {shown[-half:]}")


def printable(text: str, keep: str = "") -> str:
    r"""The text with escapes for characters that would do something instead of being shown.

    These are control characters (a newline, the escape codes of a terminal), changes of direction, and the surrogates
    that stand for bytes of a file name that is not UTF-8. The characters in `keep` stay as they are.

    >>> printable("a\x1b[31m\nb[/c]")
    'a\\x1b[31m\\nb[/c]'
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
