# Addresses of releases before networks, buckets and repositories that exist could be taken.

moved {
  from = google_storage_bucket.this
  to   = google_storage_bucket.this[0]
}
