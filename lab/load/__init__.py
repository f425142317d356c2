"""What a server withstands: visitors, races, hostile calls and files, broken conversions, replicas.

`python -m lab.load`, `lab.load.trial` and `lab.load.simulate` measure; `server` starts `app.py` for
all of them and for tests, `visitor` is one session of its page.
"""
