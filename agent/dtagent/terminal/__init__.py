"""What a person sees who runs dtagent on the host itself."""
