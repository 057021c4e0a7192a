// Programs of M-Lab's Network Diagnostic Tool, at the versions that a flow of its kinds is started with.
module dumbbell/traffic/ndt

go 1.26

tool (
	github.com/m-lab/ndt-server
	github.com/m-lab/ndt7-client-go/cmd/ndt7-client
)

require (
	github.com/m-lab/ndt-server v0.25.0
	github.com/m-lab/ndt7-client-go v0.10.1
)

require (
	github.com/apex/log v1.9.0 // indirect
	github.com/araddon/dateparse v0.0.0-20210429162001-6b43995a97de // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.0.4 // indirect
	github.com/go-jose/go-jose/v4 v4.1.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/handlers v1.5.2 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/justinas/alice v1.2.0 // indirect
	github.com/m-lab/access v0.0.13 // indirect
	github.com/m-lab/go v0.1.76 // indirect
	github.com/m-lab/locate v0.19.0 // indirect
	github.com/m-lab/tcp-info v1.9.0 // indirect
	github.com/m-lab/uuid v1.0.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/prometheus/client_golang v1.23.2 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.67.5 // indirect
	github.com/prometheus/procfs v0.19.2 // indirect
	go.yaml.in/yaml/v2 v2.4.3 // indirect
	golang.org/x/crypto v0.47.0 // indirect
	golang.org/x/exp v0.0.0-20260112195511-716be5621a96 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
