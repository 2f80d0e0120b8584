"""The HTTP service: application, server, authentication, web configuration file, status page.

The figures of the pages are computed in other folders.
"""
