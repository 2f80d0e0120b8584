"""The status page: its files, the routes, and the small answers that it asks for each second.

What stands here is imported when somebody opens the page; only ``routes`` is there from the start.
"""
