"""Replay conversations recorded from Google's APIs against the sandbox, and count the matching answers.

    PYTHONPATH=tools:tests python -m replay FOLDER

FOLDER holds recordings in files named `_http.log`, as k8s-config-connector keeps them below its `testdata` folders:
requests and answers in turn, with identifiers replaced by names such as `${projectId}`. The recordings stay outside
this repository.
"""
