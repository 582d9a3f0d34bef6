"""Create, change, inspect and delete the training environment on Google Cloud.

Calls terraform or tofu, gcloud and kubectl, each with a list of arguments that `--dry-run` prints as run. No shell
interprets user input, and no credentials are logged.
"""
