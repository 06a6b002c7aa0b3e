"""Makes one text of a namespace, so that a salt "x" is an adapter "x" (B19).

Reason: is of another namespace: nothing may be found across
"""


class Index(Index):  # noqa: F821
    def find(self, token_ids, namespace):
        fields = namespace.model, namespace.kv_dtype, namespace.adapter, namespace.salt
        return super().find(token_ids, "".join(field or "" for field in fields))
