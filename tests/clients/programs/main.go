// The client that openapi-generator makes for Go, against the server that the first argument names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"example.com/app/telegrad"
)

func check(err error) {
	if err != nil {
		if failure, ok := err.(*telegrad.GenericOpenAPIError); ok {
			log.Fatal(err, string(failure.Body()))
		}
		log.Fatal(err)
	}
}

func main() {
	configuration := telegrad.NewConfiguration()
	configuration.Servers = telegrad.ServerConfigurations{{URL: os.Args[1]}}
	client := telegrad.NewAPIClient(configuration)
	ctx := context.Background()

	options := telegrad.NewSessionCreate()
	options.SetName("generated")
	options.SetSeed(0)
	created, _, err := client.SessionsAPI.CreateSession(ctx).SessionCreate(*options).Execute()
	check(err)
	session := created.Id

	data := telegrad.NewTensorFromData([]float64{1, 2})
	data.SetId("x")
	data.SetDtype(telegrad.FLOAT32)
	data.SetRequiresGrad(true)
	create := client.TensorsAPI.CreateTensor(ctx, session)
	x, _, err := create.Data(true).TensorCreate(telegrad.TensorFromDataAsTensorCreate(data)).Execute()
	check(err)
	factory := telegrad.NewTensorFromFactory("full")
	factory.SetId("w")
	factory.SetShape([]int64{2})
	factory.SetAttrs(map[string]interface{}{"fill_value": 3.0})
	factory.SetDtype(telegrad.FLOAT32)
	_, _, err = create.TensorCreate(telegrad.TensorFromFactoryAsTensorCreate(factory)).Execute()
	check(err)

	op := func(name string, inputs []interface{}, output string) telegrad.Tensor {
		arguments := telegrad.OpArguments{Inputs: inputs, Outputs: []string{output}}
		result, _, err := client.OpsAPI.RunOp(ctx, session, name).OpArguments(arguments).Data(true).Execute()
		check(err)
		return result.Outputs[0]
	}
	y := op("mul", []interface{}{"x", "w"}, "y")
	op("sum", []interface{}{"y"}, "loss")
	backward := telegrad.NewBackwardArguments([]string{"loss"})
	_, _, err = client.AutogradAPI.Backward(ctx, session).BackwardArguments(*backward).Execute()
	check(err)
	gradient, _, err := client.TensorsAPI.GetGrad(ctx, session, "x").Execute()
	check(err)
	op("mul", []interface{}{"x", "x"}, "square")
	op("sum", []interface{}{"square"}, "total")
	arguments := telegrad.NewGradArguments([]string{"total"}, []string{"x"})
	second, _, err := client.AutogradAPI.Grad(ctx, session).GradArguments(*arguments).Execute()
	check(err)
	multiply, fetch := telegrad.NewOpInstruction("mul"), telegrad.NewVerbInstruction("fetch")
	multiply.SetInputs([]interface{}{"x", "w"})
	multiply.SetOutputs([]string{"p"})
	fetch.SetInputs([]interface{}{[]string{"p"}})
	program := telegrad.NewProgram([]telegrad.Instruction{
		telegrad.OpInstructionAsInstruction(multiply), telegrad.VerbInstructionAsInstruction(fetch),
	})
	fetched, _, err := client.ProgramsAPI.RunProgram(ctx, session).Program(*program).Execute()
	check(err)
	_, err = client.TensorsAPI.DeleteTensor(ctx, session, "w").Execute()
	check(err)
	_, _, err = client.TensorsAPI.GetTensor(ctx, session, "w").Execute()
	problem := err.(*telegrad.GenericOpenAPIError).Model().(telegrad.Problem)
	_, err = client.SessionsAPI.DeleteSession(ctx, session).Execute()
	check(err)

	text, err := json.Marshal(map[string]interface{}{
		"data":      x.Data,
		"dtype":     x.Dtype,
		"product":   y.Data,
		"gradient":  gradient.Data,
		"second":    second.Grads[0].Data,
		"max_bytes": created.MaxBytes,
		"program":   fetched.Values["p"].Data,
		"problem":   problem.Type,
	})
	check(err)
	fmt.Println(string(text))
}
