"""The page for many visitors: replicas of the models on Ray, the folder of a Space, how many
replicas visitors need, and a server and visitors for the trial of all this.

Of the other packages it imports the pipeline alone. `cluster` imports Ray and `visitor`
gradio_client, each where it is called. Results of benchmarks are read as files.
"""
