"""Rewrites the reviewed record beside every capture: ``make golden``, and a person reads the diff.

A capture ``tests/captures/<board>__<l4t>.txt`` holds lines as a board printed them, and the file
beside it that ends in ``.jsonl`` the record of each, one a line, defaults left out.
"""

from pathlib import Path

from tegrascope import parse_line

CAPTURES = Path(__file__).parent / "captures"


def main() -> None:
    """Write the record of every captured line as it is read today."""
    for capture in sorted(CAPTURES.glob("*.txt")):
        lines = capture.read_text(encoding="utf-8").splitlines()
        records = [parse_line(line).model_dump_json(exclude_defaults=True) for line in lines]
        golden = capture.with_suffix(".jsonl")
        golden.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
        print(f"{golden.name}: {len(records)} records")


if __name__ == "__main__":
    main()
