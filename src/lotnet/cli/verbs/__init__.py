"""One module for each verb, with `main(arguments) -> exit code`."""
