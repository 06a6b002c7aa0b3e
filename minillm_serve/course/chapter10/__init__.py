"""What chapter 10 measures and shows: the whole engine behind HTTP, and what overload does to it.

`burst` is a simulated rush, and `doors` has what may stand against it. `crowd` sends real requests
to a real server, `watch` and `recorder` read its `/metrics`, `dashboard` shows both live. `child`
is a server in a process of its own, to be killed.
"""
