"""The job manager for people who share TPU VMs: users, their directories and aliases, holders of TPUs, and windows.

A window is a number under which a user refers to a job. Jobs themselves are submitted, driven and stored like all
others.
"""
