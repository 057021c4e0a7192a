"""The steps of a point on the controller: what each step asks of the hosts, and how their answers are used.

A step (:mod:`dumbbell.execution.steps`) gets a way to reach its host (:mod:`dumbbell.execution.reach`).
Ansible's actions have one by its connection (:mod:`dumbbell.execution.action`), the controller of a light
world has one into namespaces (:mod:`dumbbell.virtual.namespaces`). A step never ends the play: it returns an
answer, and later steps see the answers of all hosts. The steps of a point, in ``roles/run/tasks/point.yml``:

=========  ==========================================================================================
state      apply the complete state of the host, read it back, write the plans of its agents
arm        arm the agent of the first phase: the calibration, or the measurement if a calibration is known
start      send one t0 to all hosts
turn       await the end of the calibration and arm the measurement
start      send one t0 to all hosts
end        show the progress of the measurement, await the end of the agents and fetch their files
judge      tables, verdict, report
=========  ==========================================================================================
"""
