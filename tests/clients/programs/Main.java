// The client that openapi-generator makes for Java, against the server that the first argument names.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.AutogradApi;
import org.openapitools.client.api.OpsApi;
import org.openapitools.client.api.ProgramsApi;
import org.openapitools.client.api.SessionsApi;
import org.openapitools.client.api.TensorsApi;
import org.openapitools.client.model.BackwardArguments;
import org.openapitools.client.model.GradArguments;
import org.openapitools.client.model.GradResult;
import org.openapitools.client.model.Instruction;
import org.openapitools.client.model.OpArguments;
import org.openapitools.client.model.OpInstruction;
import org.openapitools.client.model.Program;
import org.openapitools.client.model.ProgramResult;
import org.openapitools.client.model.SessionCreate;
import org.openapitools.client.model.SessionStatus;
import org.openapitools.client.model.Tensor;
import org.openapitools.client.model.TensorCreate;
import org.openapitools.client.model.TensorFromData;
import org.openapitools.client.model.TensorFromFactory;
import org.openapitools.client.model.VerbInstruction;

public class Main {
  private static OpsApi ops;
  private static String session;

  private static Tensor op(String name, List<Object> inputs, String output) throws ApiException {
    OpArguments arguments = new OpArguments().inputs(inputs).outputs(List.of(output));
    return ops.runOp(session, name, arguments, true, null, null).getOutputs().get(0);
  }

  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(arguments[0]);
    SessionsApi sessions = new SessionsApi(client);
    TensorsApi tensors = new TensorsApi(client);
    AutogradApi autograd = new AutogradApi(client);
    ops = new OpsApi(client);

    SessionStatus created = sessions.createSession(null, new SessionCreate().name("generated").seed(0L));
    session = created.getId();
    TensorFromData data = new TensorFromData().id("x").data(List.of(1.0, 2.0)).requiresGrad(true);
    Tensor x = tensors.createTensor(session, new TensorCreate(data), true, null, null, null, null, null, null);
    TensorFromFactory factory =
        new TensorFromFactory().id("w").factory("full").shape(List.of(2L)).attrs(Map.of("fill_value", 3.0));
    tensors.createTensor(session, new TensorCreate(factory), null, null, null, null, null, null, null);
    Tensor y = op("mul", List.of("x", "w"), "y");
    op("sum", List.of("y"), "loss");
    autograd.backward(session, new BackwardArguments().tensors(List.of("loss")), null, null);
    Tensor gradient = tensors.getGrad(session, "x", null, null);
    op("mul", List.of("x", "x"), "square");
    op("sum", List.of("square"), "total");
    GradResult second =
        autograd.grad(session, new GradArguments().outputs(List.of("total")).inputs(List.of("x")), null, null, null);
    Instruction multiply = new Instruction(new OpInstruction().op("mul").inputs(List.of("x", "w")).outputs(List.of("p")));
    Instruction fetch =
        new Instruction(new VerbInstruction().op(VerbInstruction.OpEnum.FETCH).inputs(List.of(List.of("p"))));
    Program program = new Program().instructions(List.of(multiply, fetch));
    ProgramResult result = new ProgramsApi(client).runProgram(session, program, null, null);
    Tensor fetched = result.getValues().get("p");
    tensors.deleteTensor(session, "w", null, null, null);
    ObjectMapper mapper = new ObjectMapper();
    String problem = null;
    try {
      tensors.getTensor(session, "w", null, null);
    } catch (ApiException error) {
      problem = mapper.readTree(error.getResponseBody()).get("type").asText();
    }
    sessions.deleteSession(session, null, null);

    Map<String, Object> found = new LinkedHashMap<>();
    found.put("data", x.getData());
    found.put("dtype", x.getDtype().getValue());
    found.put("product", y.getData());
    found.put("gradient", gradient.getData());
    found.put("second", second.getGrads().get(0).getData());
    found.put("max_bytes", created.getMaxBytes());
    found.put("program", fetched.getData());
    found.put("problem", problem);
    System.out.println(mapper.writeValueAsString(found));
  }
}
