module dumbbell

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/cilium/ebpf v0.22.0
	github.com/coreos/go-systemd/v22 v22.7.0
	github.com/facebook/time v0.0.0-20260822211804-f81aedc1c1e3
	github.com/google/renameio/v2 v2.0.2
	github.com/influxdata/line-protocol/v2 v2.2.1
	github.com/mdlayher/netlink v1.11.2
	github.com/mdlayher/socket v0.6.0
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/net v0.55.0
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
)
