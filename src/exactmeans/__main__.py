"""`python -m exactmeans`: the command line."""

from exactmeans.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
