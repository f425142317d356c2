"""The installed project: the command `dolly`, and in the wheel all folders of the repository.

The code imports `pipeline`, `ui`, `serving` and `lab`, and reads `assets/` beside them, so that
`python app.py` works without an installation. In site-packages these names would collide with those
of other projects. So the wheel holds one package, `dolly_twice`, with the folders inside it, in the
same places relative to each other; `__main__` puts it first on Python's path. Only a process of
`dolly` sees the short names.
"""
