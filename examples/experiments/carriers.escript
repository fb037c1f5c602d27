%%! -noinput
%% carriers.escript COUNT ROUNDS: keeps COUNT binaries of 64 to 4096 bytes and replaces each of them ROUNDS times by one of
%% another size, in random order; then drops all but each tenth. Prints binaries a second and the resident memory.
-mode(compile).

main([Count0, Rounds0]) ->
    Count = list_to_integer(Count0),
    Rounds = list_to_integer(Rounds0),
    rand:seed(exsss, {1, 2, 3}),
    Table = ets:new(binaries, [set]),
    Began = erlang:monotonic_time(microsecond),
    [put_one(Table, N) || N <- lists:seq(1, Count)],
    [put_one(Table, rand:uniform(Count)) || _ <- lists:seq(1, Count * Rounds)],
    Took = erlang:monotonic_time(microsecond) - Began,
    [ets:delete(Table, N) || N <- lists:seq(1, Count), N rem 10 =/= 0],
    erlang:garbage_collect(),
    timer:sleep(500),
    {ok, Statm} = file:read_file("/proc/self/statm"),
    [_, Resident | _] = binary:split(Statm, <<" ">>, [global]),
    io:format("{\"binaries_per_s\": ~.1f, \"resident_bytes\": ~w}~n",
              [Count * (Rounds + 1) * 1.0e6 / Took, binary_to_integer(Resident) * 4096]).

put_one(Table, N) ->
    ets:insert(Table, {N, binary:copy(<<0>>, 64 + rand:uniform(4032))}).
