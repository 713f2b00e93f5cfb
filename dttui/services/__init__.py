"""Use cases, headless: fleet, launch, controller, following, deployment."""
