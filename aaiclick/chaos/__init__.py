"""Break it on purpose: real servers and workers under load, faults by a schedule, a check that nothing is lost.

schedule   what happens when, from a seed
servers    PostgreSQL and ClickHouse of this run's own, and workers on them
proxy      the network between them, which can be slow, silent or cut
load       clients that submit until they are heard
flow       a reactive DAG, and what must be in its datasets
bodies     what the tasks do
history    what clients and tasks saw, in files outside of all this
checker    histories against PostgreSQL and ClickHouse
expected   … and what must be so of tasks and jobs
verdict    what it comes to
scene      an installation of a run's own, with workers and clients
strikes    each kind of fault, done to it
run        all of it, beside a calm run
soak       steady load for long, in which nothing may grow
"""
