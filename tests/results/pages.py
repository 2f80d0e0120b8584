"""Reads pages of HTML for tests."""

import json
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "line", "path"}
_SAVED = re.compile(r'<script type="application/json" id="saved">(.*?)</script>', re.S)


class Page(HTMLParser):
    """Sees to it that every element is closed in order, and collects what is there."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []
        self.words = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, _attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)


def saved_in(text):
    """Return what the script of a page draws: the records of runs, and the timeline."""
    return json.loads(_SAVED.search(text)[1])


def check_asks_for_nothing(text, page):
    """Nothing of the page comes from elsewhere, and its policy lets nothing in."""
    (policy,) = [
        value
        for _, name, value in page.attributes
        if name == "content" and value.startswith("default-src")
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not {"img", "iframe", "object"} & set(page.seen)
    addresses = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert all(value.startswith(("data:", "#run-")) for value in addresses)
    assert not re.search(r"url\((?!#)|@import", text)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
