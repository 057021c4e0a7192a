"""How a controller takes a point through its steps: what it asks of hosts, what follows from their answers.

Nothing here knows Ansible but :mod:`dumbbell.execution.action`. A step never ends the play: it answers, and
the steps after it see all answers. The steps of a point, in ``roles/run/tasks/point.yml``:

=========  ==========================================================================================
state      apply the complete state of the host, read it back, put the plans of its agents in place
arm        arm the agent of the first phase: the calibration, or the measurement if one is known
start      send one t0 to all hosts
turn       await the end of the calibration and arm the measurement
start      send one t0 to all hosts, and show how the measurement is getting on
end        await the end of the agents and bring home what they left
judge      tables, verdict, report
=========  ==========================================================================================
"""
