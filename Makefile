# Fairlead's build. `make demo` and `make test` install what they need.
.PHONY: build test demo generate deps clean

build:
	CGO_ENABLED=0 go build -trimpath -o bin/fairlead ./cmd/fairlead

generate: deps
	go generate ./...
