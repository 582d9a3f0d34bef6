# terraform init -backend-config=bucket=BUCKET -backend-config=prefix=PREFIX
# Infrastructure Manager keeps the state itself and takes the folder without this file.
terraform {
  backend "gcs" {}
}
