"""The images and docker-compose.yml, run by podman and by Docker's own Compose."""
