// Command gen writes the OpenAPI document of fairlead.v1.Control to its second argument,
// from the descriptors (a FileDescriptorSet of protoc's, with imports and comments) in
// its first.
package main

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/fairlead/fairlead/api/openapi"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return err
	}
	found, err := files.FindDescriptorByName("fairlead.v1.Control")
	if err != nil {
		return err
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return fmt.Errorf("%s is no service", found.FullName())
	}
	document, err := openapi.Document(service)
	if err != nil {
		return err
	}
	return os.WriteFile(out, document, 0o644)
}
