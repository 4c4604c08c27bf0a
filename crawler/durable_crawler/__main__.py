"""``python -m durable_crawler`` is the console script."""

from durable_crawler.cli import main

if __name__ == "__main__":
    main()
