"""The client of an agent over a transport: requests out, answers checked and bounded."""
