"""Permissions of scopes."""

from aaiclick.operations.actor import Permission, scope_permissions


def test_scope_permissions_are_combined():
    assert scope_permissions(["worker"], is_operator=True) == {Permission.PUBLIC, Permission.WORKER}
    assert Permission.OPERATOR not in scope_permissions(["admin"], is_operator=False)
    assert Permission.OPERATOR in scope_permissions(["admin"], is_operator=True)
    assert scope_permissions(["reader"], is_operator=True) == {
        Permission.PUBLIC,
        Permission.READER,
        Permission.OBSERVER,
    }
    assert scope_permissions(["nonsense"], is_operator=True) == {Permission.PUBLIC}
