"""Files of other products: told by what is characteristic of each, and carried over to a job or refused by name.

`yaml_kinds`, `kubernetes_kinds` and `text_kinds` are tables of what each kind is told by; `finding_kinds` asks them, in
an order that it states. What is taken as a job has a module of its own here.
"""
