"""The HTTP service: application, server, authentication, web configuration file, status page.

What the pages say is computed elsewhere; here it is asked for, written and guarded.
"""
