"""The one exception for what a person can put right."""


class InputError(ValueError):
    """Bad input: one sentence that says what is wrong and names the remedy.

    The command line prints the sentence and exits with code 2; a library user catches a `ValueError`.
    """
