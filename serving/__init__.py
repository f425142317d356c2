"""The page for many visitors: replicas of the models on Ray, and the folder of a Space.

Of the other packages it imports the pipeline alone. `cluster` alone knows Ray, which it imports
where it is called. What measures all this is `lab.load`.
"""
