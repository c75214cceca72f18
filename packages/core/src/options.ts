export { checkCallback, checkCount, checkOptionNames, namesOf, type OptionNames } from "@mlxts/common/options";
