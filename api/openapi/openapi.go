// Package openapi is the OpenAPI document of the controllers' API, which they serve at
// /openapi.json, and how it is made of the schema (`make proto`).
package openapi

import _ "embed"

// Control is the document of the service Control, as JSON.
//
//go:embed control.json
var Control []byte
