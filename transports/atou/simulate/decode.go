package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// decode reads a JSON object into a struct, and nothing that it does not know.
// The error names, for each thing wrong, section and key, what was found and
// what is allowed. A section ends with a period; the whole has none.
func decode(section string, object []byte, into reflect.Value) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return err
	}
	fields, names := map[string]reflect.Value{}, []string{}
	for i := range into.NumField() {
		name := into.Type().Field(i).Tag.Get("json")
		fields[name] = into.Field(i)
		names = append(names, name)
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		field, value := fields[key], values[key]
		switch {
		case !field.IsValid():
			problems = append(problems, fmt.Errorf("%s%q is no key; allowed are %s", section, key, strings.Join(names, ", ")))
		case field.Kind() == reflect.Struct && value[0] == '{':
			problems = append(problems, decode(key+".", value, field))
		default:
			d := json.NewDecoder(bytes.NewReader(value))
			d.UseNumber() // so that a configuration has them as they are written
			if d.Decode(field.Addr().Interface()) != nil {
				problems = append(problems, fmt.Errorf("%s%s: found %s; allowed is %s", section, key, value, allowed(field.Type())))
			}
		}
	}
	return errors.Join(problems...)
}

func allowed(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list, each " + allowed(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object of keys"
	default:
		return "a whole number"
	}
}
