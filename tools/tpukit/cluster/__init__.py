"""The training environment on Google Cloud: made, changed, looked at and removed.

Works through the programs that people have anyway (terraform or tofu, gcloud, kubectl), each called with a list of
arguments that `--dry-run` prints as it is run. No shell reads what a person wrote, and nothing is logged that opens a
door.
"""
