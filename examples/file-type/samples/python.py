"""Count words in files given on the command line."""

import collections
import sys
from pathlib import Path


def count_words(path: Path) -> collections.Counter:
    """Return how often each lower-case word occurs in the file."""
    counter = collections.Counter()
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            counter.update(word.lower() for word in line.split() if word.isalpha())
    return counter


class Report:
    def __init__(self, top: int = 10) -> None:
        self.top = top
        self.total = collections.Counter()

    def add(self, counter: collections.Counter) -> None:
        self.total += counter

    def __str__(self) -> str:
        return "\n".join(f"{count:6d} {word}" for word, count in self.total.most_common(self.top))


if __name__ == "__main__":
    report = Report()
    for argument in sys.argv[1:]:
        report.add(count_words(Path(argument)))
    print(report)
