# Addresses of releases before networks, buckets and repositories that exist could be taken.

moved {
  from = google_artifact_registry_repository.this
  to   = google_artifact_registry_repository.this[0]
}
