output "name" {
  description = "Name of the database"
  value       = google_firestore_database.this.name
}
