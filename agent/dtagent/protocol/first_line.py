"""What the bridge looks for or says. Apart from the rest of the protocol, whose imports a person would wait for."""

MAGIC = b"dtagent-bridge 1\n"
"""First line the bridge writes; whatever a login shell prints before it is discarded."""
REFUSAL = b'{"jsonrpc":"2.0","id":null,"error"'
"""How an answer begins that belongs to no call: when it is the first, the client is not served at all."""
