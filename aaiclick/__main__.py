"""`python -m aaiclick` is `aaiclick`."""

from aaiclick.cli.main import main

if __name__ == "__main__":
    main()
