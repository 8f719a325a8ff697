// Package api is how daemons and the command line talk: the client of the
// service that fairlead.proto defines, and the handing over of assignments.
package api

//go:generate sh -c "PATH=\"$(go env GOPATH)/bin:$PATH\" protoc --proto_path=. --go_out=.. --go_opt=module=github.com/fairlead/fairlead --connect-go_out=.. --connect-go_opt=module=github.com/fairlead/fairlead connections.proto control.proto fairlead.proto paths.proto reload.proto"
//go:generate sh -c "protoc --proto_path=. --include_imports --include_source_info --descriptor_set_out=control.set control.proto && go run ./openapi/gen control.set openapi/control.json && rm control.set"
